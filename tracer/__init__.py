"""The words and the SDK: stages, names, clocks, spans. Imports none of the other packages."""
