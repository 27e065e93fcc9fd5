"""The versions of all files that SplineCam writes: a change of a format raises its number here."""

PARTITION = 3  # part.save
RESULTS = 3  # sc.sweep(..., store=) and sc.grid(..., store=)
ATLAS = 3  # sc.atlas
RUN = 3  # sc.watch(..., store=)
