"""The use-cases behind every API: given a `World`, change or read the store. No HTTP here."""
