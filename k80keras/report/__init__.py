"""Pages drawn from frozen values."""

from k80keras.report.html import write_html as write_html

__all__ = ["write_html"]
