"""Execution of the plan's steps. Every step can be repeated: after a crash it is planned again, or its result is seen.

The reconcilers call it after planning. It does not decide what to do, and does not observe.

- `fence`          the second look before a disruption; also for local clusters
- `kafka`          steps through the cluster's own protocol; also for local clusters
- `kubernetes`     steps through the API server;  `objects` comparison of objects
- `record`         the ConfigMap that keeps the record;  `grants` permissions of pod templates
- `topics`         KRaftTopics through Kafka's protocol;  `topic_objects` their objects on Kubernetes
- `users`          KRaftUsers;  `user_requests` their requests;  `user_objects` their objects on Kubernetes
- `declared`       the resources that declare topics and users;  `fronts` Ingresses and Routes
"""
