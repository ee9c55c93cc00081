#!/usr/bin/env bash
# Trains a small CNN on real digits with K80Tuner. Arguments go to train.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

# Vendor 0x10de is NVIDIA, class 0x03.... a display or 3D controller.
has_nvidia_card() {
  local device
  if [[ -e /proc/driver/nvidia/version ]]; then
    return 0
  fi
  for device in /sys/bus/pci/devices/*; do
    if [[ -r $device/vendor && $(<"$device/vendor") == 0x10de &&
      $(<"$device/class") == 0x03* ]]; then
      return 0
    fi
  done
  return 1
}

python=$(find_python)
lanes=$(find_lanes "$python")
if [[ $lanes != k80* ]]; then
  echo "$("$python" --version) has no TensorFlow 2.14.1: using the newest TensorFlow."
  extra=tensorflow
elif has_nvidia_card; then
  echo "NVIDIA card found: using TensorFlow 2.14.1 with CUDA 11.8."
  extra=k80
else
  echo "No NVIDIA card found: using TensorFlow 2.14.1 on the CPU."
  extra=k80-cpu
fi
make_env quickstart "$extra,datasets,report"
.venvs/quickstart/bin/python scripts/train.py --dataset=digits --model=cnn \
  --epochs=5 --output_dir="runs/quickstart-$(date +%Y%m%d-%H%M%S)" "$@"
