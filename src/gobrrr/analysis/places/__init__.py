"""Where in the program the step's time is: one tree of places, and each nanosecond of the step at one of its nodes."""

from gobrrr.analysis.places.listed import ListedPlaces, listed
from gobrrr.analysis.places.pointing import place_of
from gobrrr.analysis.places.tracks import with_host
from gobrrr.analysis.places.where import PlaceTimes, where_time_goes

__all__ = ["ListedPlaces", "PlaceTimes", "listed", "place_of", "where_time_goes", "with_host"]
