"""The same work again: operations whose inputs, and so whose results, were there before; rows that a turn repeats."""
