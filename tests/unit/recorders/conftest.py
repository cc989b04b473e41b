"""mitmproxy's addons import libraries that warn of parts of their own; here that would be an error."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mitmproxy.test.taddons  # noqa: F401
