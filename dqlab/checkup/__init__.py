"""What is wrong with a cluster or a store, and what to do about it: facts are gathered, pure checks judge them."""
