"""One module per API, one class per message for all its versions; made by script/generate_messages.py."""
