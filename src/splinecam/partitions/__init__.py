"""What a run gives: the class ``Partition``, its files, and how it is made from an outcome."""
