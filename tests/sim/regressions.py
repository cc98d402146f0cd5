"""Seeds that once failed, each with the mistake it found. They run for ever."""

REGRESSIONS = {
    230: "killed between making a partition's directory and naming its topic: the broker refused to start for good",
    309: "the same, after a power cut",
    24: "nobody waited for a broker that was still starting when the run was judged",
    1066: "a producer's first batch found no space, and the batch sent behind it was written in its place",
    1083: "the same",
}
