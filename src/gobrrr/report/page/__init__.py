"""The parts of the HTML page: each turns a piece of a Diagnosis into markup that is safe to show."""
