"""Consumer groups of KIP-848 in simulated clusters.

    scenario    the clusters
    clients     their members, pauses, and the wait for stable groups
    member      a member: heartbeats, partitions, fetches, commits, the ways to end
    classic     a member of the classic protocol, in groups that change their protocol
    ownership   who may use a partition, by the answers of coordinators to members: laws `owners` and `epoch owner`
    stability   why a group is not stable: law `settled`

The laws `offsets` and `coordinators` judge commits, and what a standby loads (`testing.coordinator_laws`).
"""
