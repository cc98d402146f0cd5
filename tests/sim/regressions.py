"""Seeds that once failed, each with the mistake it found. They are run permanently.

A seed gives another run once the simulator itself has changed; a unit test covers each mistake as well.
"""

REGRESSIONS: dict[int, str] = {
    595: "a coordinator that was elected again forgot the markers that it had just begun to send",
    21: "a standby had other records where its leader's log had not begun yet, and called them committed",
    21207: "a producer's first batch was sent to a broker that did not have the "
    "topic yet, and the next one was written",
    30984: "what a broker had said before it died was heard after it had been fenced",
    60764: "a voter that could not write its checkpoints before a cut forgot what it had, and fetched in vain",
    61181: "the ledger asked a candidate that heard late of its election for what later epochs had committed",
}
