"""Where a step's time goes: each nanosecond in one line, why the device idles, and the step as measured."""
