"""Where in the program the step's time is: one tree of places, and each nanosecond of the step at one of its nodes."""

from gobrrr.analysis.places.where import Where, where_time_goes

__all__ = ["Where", "where_time_goes"]
