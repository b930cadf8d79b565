#!/usr/bin/env bash
# Connects the pods of this node with those of the others: a CNI configuration for its own range of addresses, a route to
# the range of each other node, and masquerading for what leaves the cluster. NODE: this node; PODS: all ranges.
set -euo pipefail
api() { # PATH: a JSON object of the API server
    local account=/var/run/secrets/kubernetes.io/serviceaccount
    curl -sSf --max-time 10 --cacert "$account/ca.crt" -H "Authorization: Bearer $(<"$account/token")" \
        "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT$1"
}

masquerade=(POSTROUTING -s "$PODS" ! -d "$PODS" -j MASQUERADE)
iptables -w -t nat -C "${masquerade[@]}" 2>/dev/null || iptables -w -t nat -A "${masquerade[@]}"

while true; do
    if nodes=$(api /api/v1/nodes); then
        jq -r '.items[] | [.metadata.name, .spec.podCIDR, (.status.addresses[]? | select(.type == "InternalIP") | .address)] | @tsv' \
            <<<"$nodes" | while read -r name range address; do
            if [ -z "$range" ] || [ -z "$address" ]; then
                continue # not registered yet
            elif [ "$name" = "$NODE" ]; then
                # Written under another name first: the runtime reads the folder at any time.
                printf '{"cniVersion":"0.3.1","name":"node-network","plugins":[{"type":"ptp","ipMasq":false,"ipam":{"type":"host-local","dataDir":"/run/cni-ipam","routes":[{"dst":"0.0.0.0/0"}],"ranges":[[{"subnet":"%s"}]]}},{"type":"portmap","capabilities":{"portMappings":true}}]}\n' \
                    "$range" >/etc/cni/net.d/.new
                cmp -s /etc/cni/net.d/.new /etc/cni/net.d/10-node-network.conflist \
                    || mv /etc/cni/net.d/.new /etc/cni/net.d/10-node-network.conflist
            else
                ip route replace "$range" via "$address"
            fi
        done
    fi
    sleep 5
done
