"""The user's own objects in one step, by what they are, what the program calls them and how its source makes them."""
