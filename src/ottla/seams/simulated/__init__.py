"""The seams without a machine: several nodes on one thread, in virtual time, from one seed.

`simulation.Simulation` runs the event loops of its nodes. A node has what a broker is given: a
clock, an event loop, a disk, a network, chance and background work. It can be crashed, paused and
started again while the others go on.
"""
