"""One simulated world with everything: the clients and laws of all scenarios of clusters on one cluster.

parts       what a seed has: each part is in about half of the seeds, so that every pair meets often
scenario    one seed, from formatted disks to the verdict
faults      faults that the other scenarios lack: deaths inside an event, power lost after an ISR has shrunk
settings, quotas, growth, directories, access   operators that change a cluster under load
retained, aged, lossy   clients of topics with retention by size and by time, and with unclean elections
statics, cooperative   members of classic groups
resources   the laws of resources
"""
