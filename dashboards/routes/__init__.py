"""The API's routes, by what they answer."""
