"""Large values: split into chunk records and reassembled, or kept in a store and referred to."""
