#!/usr/bin/env bash
# Builds a node image for kind where `kindest/node` cannot be pulled: node-image.sh [IMAGE]
# From Debian packages (debootstrap), kind's own files (its Go module), and Kubernetes from its Go modules. Needs root,
# debootstrap, Go, and a Docker daemon. KIND_BUILD names the folder that keeps what was built.
#
# What differs from kindest/node: Debian's containerd and runc; one image for the control plane's programs; a small
# program of ours in place of kindnet (same job: a CNI configuration and routes); local-path-provisioner as kind has it.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
IMAGE=${1:-localhost/kind-node:v1.36.3}
BUILD=${KIND_BUILD:-${XDG_CACHE_HOME:-$HOME/.cache}/kind-node}
KUBERNETES=v1.36.3 ETCD=v3.7.3 COREDNS=v1.15.0 KIND=v0.33.0 CRICTL=v1.36.0 LOCAL_PATH=v0.0.30 DEBIAN=bookworm
BIN=$BUILD/bin
mkdir -p "$BIN"

step() { printf '%4ds %s\n' "$SECONDS" "$*"; }

go_program() { # OUTPUT PACKAGE VERSION: a command of a published module
    [ ! -x "$BIN/$1" ] || return 0
    local folder
    folder=$(mktemp -d)
    (cd "$folder" && go mod init build && go get "$2@$3" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$BIN/$1" "$2") \
        >"$BUILD/go.log" 2>&1 || { tail -20 "$BUILD/go.log" >&2; exit 1; }
    rm -rf "$folder"
    step "built $2 $3"
}

kubernetes() { # the commands of Kubernetes as one program, which runs the command that it is called by
    [ ! -x "$BIN/kubernetes" ] || return 0
    local folder source minor
    folder=$(mktemp -d)
    source=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
    minor=${KUBERNETES#v1.}
    minor=${minor%%.*}
    # The published module replaces its staging folders by paths; here they are the modules of the same release.
    sed -E "s#^module .*#module build#; s#=> \./staging/src/(.*)#=> \1 v0${KUBERNETES#v1}#" "$source/go.mod" >"$folder/go.mod"
    cp "$source/go.sum" "$folder/go.sum"
    chmod u+w "$folder/go.sum"
    cp "$HERE/kubernetes.go" "$folder/main.go"
    local flags="-s -w" name
    for name in gitVersion=$KUBERNETES gitMajor=1 gitMinor=$minor gitTreeState=clean; do
        flags+=" -X k8s.io/component-base/version.$name -X k8s.io/client-go/pkg/version.$name"
    done
    (cd "$folder" && go mod edit -require "k8s.io/kubernetes@$KUBERNETES" && go mod tidy \
        && CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$BIN/kubernetes" .) \
        >"$BUILD/go.log" 2>&1 || { tail -20 "$BUILD/go.log" >&2; exit 1; }
    rm -rf "$folder"
    step "built Kubernetes $KUBERNETES"
}

rootfs() { # Debian with systemd, containerd and runc, and kind's files on top
    local root=$BUILD/rootfs module mirror
    [ ! -f "$BUILD/rootfs.tar" ] || return 0
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $DEBIAN" | sort -u | head -1)
    if [ ! -d "$root/kind" ]; then
        rm -rf "$root"
        debootstrap --variant=minbase --include=systemd,systemd-sysv,conntrack,iptables,nftables,iproute2,ethtool,mount,kmod,e2fsprogs,ca-certificates,curl,jq,procps,socat,containerd,runc,containernetworking-plugins \
            "$DEBIAN" "$root" "${mirror:-http://deb.debian.org/debian}" >"$BUILD/debootstrap.log" 2>&1
        step "Debian $DEBIAN"
    fi
    module=$(go mod download -json "sigs.k8s.io/kind@$KIND" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
    cp -rT --no-preserve=mode,ownership "$module/images/base/files" "$root"
    chmod 755 "$root"/usr/local/bin/* "$root"/kind/bin/*
    rm -f "$root"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$root"/etc/systemd/system/*.wants/* \
        "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
        "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
    echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"
    ln -sfn /usr/lib/systemd/systemd "$root/sbin/init"
    # Debian's containerd has another path than kind's own; a machine may forbid to lower oom_score_adj.
    sed -i 's#/usr/local/bin/containerd#/usr/bin/containerd#; /^OOMScoreAdjust/d; s/infinity$/1048576/; s/^TasksMax=.*/TasksMax=infinity/' \
        "$root/etc/systemd/system/containerd.service"
    sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
    mkdir -p "$root/opt/cni" "$root/etc/kubernetes/manifests" "$root/kind/manifests"
    ln -sfn /usr/lib/cni "$root/opt/cni/bin"
    chroot "$root" systemctl enable kubelet.service containerd.service undo-mount-hacks.service >/dev/null 2>&1
    chroot "$root" systemctl mask systemd-binfmt.service >/dev/null 2>&1
    chroot "$root" ctr oci spec | jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
        >"$root/etc/containerd/cri-base.json"
    cp "$BIN/kubernetes" "$root/usr/bin/kubernetes"
    local name
    for name in kubeadm kubelet kubectl; do ln -sfn kubernetes "$root/usr/bin/$name"; done
    cp "$BIN/crictl" "$root/usr/local/bin/crictl"
    install -m 755 "$HERE/runc.sh" "$root/usr/local/sbin/runc"
    echo -n "$KUBERNETES" >"$root/kind/version"
    cp "$HERE/network.yaml" "$root/kind/manifests/default-cni.yaml"
    # kind keeps this manifest in its source, with the names of two images that cannot be pulled here.
    sed -n '/^const defaultStorageManifest = `/,/^`/p' "$module/pkg/build/nodeimage/const_storage.go" \
        | sed -E '1d; /^`$/d; s#` \+ [A-Za-z]+ \+ `#localhost/kind-node-tools:1#; s#` \+ [A-Za-z]+$#localhost/kind-node-tools:1#' \
        >"$root/kind/manifests/default-storage.yaml"
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{locale,man,info}
    tar -C "$root" -cf "$BUILD/rootfs.tar" --numeric-owner .
    step "root file system"
}

small_image() { # CONTEXT-FOLDER TAG...: an image of these files alone, as an archive under its tags
    local folder=$1 tag tags=()
    shift
    for tag in "$@"; do tags+=(--tag "$tag"); done
    DOCKER_BUILDKIT=0 docker build -q "${tags[@]}" "$folder" >/dev/null 2>"$BUILD/docker.log"
}

images() { # what the static pods and the add-ons of a kind cluster run
    local folder kubeadm_images pause
    [ ! -f "$BUILD/images.tar" ] || return 0
    kubeadm_images=$("$BIN/kubeadm" config images list --kubernetes-version "$KUBERNETES" | grep -v /pause:)
    pause=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$BUILD/rootfs/etc/containerd/config.toml")
    folder=$(mktemp -d)
    mkdir "$folder"/{control,etcd,coredns,pause,tools}

    # kube-proxy calls iptables, so these four stand on the base of the node, which has the program already.
    cat >"$folder/control/Dockerfile" <<'X'
FROM localhost/kind-node-base
RUN for name in apiserver controller-manager scheduler proxy; do ln -s /usr/bin/kubernetes /usr/local/bin/kube-$name; done
X
    small_image "$folder/control" $(grep /kube- <<<"$kubeadm_images")

    cp "$BIN/etcd" "$folder/etcd/"
    printf 'FROM scratch\nCOPY etcd /usr/local/bin/etcd\nENV PATH=/usr/local/bin\n' >"$folder/etcd/Dockerfile"
    small_image "$folder/etcd" "$(grep /etcd: <<<"$kubeadm_images")"

    cp "$BIN/coredns" "$folder/coredns/"
    printf 'FROM scratch\nCOPY coredns /coredns\nENTRYPOINT ["/coredns"]\n' >"$folder/coredns/Dockerfile"
    small_image "$folder/coredns" "$(grep /coredns <<<"$kubeadm_images")"

    cp "$HERE/pause.go" "$folder/pause/main.go"
    (cd "$folder/pause" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o pause main.go)
    printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' >"$folder/pause/Dockerfile"
    small_image "$folder/pause" "$pause"

    cp "$BIN/local-path-provisioner" "$HERE/network.sh" "$folder/tools/"
    printf 'FROM localhost/kind-node-base\nCOPY local-path-provisioner network.sh /usr/local/bin/\n' >"$folder/tools/Dockerfile"
    small_image "$folder/tools" localhost/kind-node-tools:1

    docker save -o "$BUILD/images.tar" $kubeadm_images "$pause" localhost/kind-node-tools:1
    rm -rf "$folder"
    step "images of the control plane and the add-ons"
}

node() { # the base with the images in its containerd
    container=$(docker run -d --privileged --entrypoint sleep localhost/kind-node-base infinity)
    trap 'docker rm -f -v "$container" >/dev/null' EXIT
    docker exec -d "$container" containerd
    docker exec "$container" sh -c 'for _ in $(seq 60); do ctr version >/dev/null 2>&1 && exit; sleep 1; done; exit 1'
    docker exec -i "$container" ctr --namespace=k8s.io images import --all-platforms --no-unpack --digests - <"$BUILD/images.tar" >/dev/null
    docker exec "$container" sh -c 'kill $(pidof containerd); sleep 1; rm -rf /run/containerd'
    docker commit --change 'ENTRYPOINT [ "/usr/local/bin/entrypoint", "/sbin/init" ]' "$container" "$IMAGE" >/dev/null
    step "$IMAGE"
}

kubernetes
for name in kubeadm kubelet kubectl; do ln -sfn kubernetes "$BIN/$name"; done
go_program etcd go.etcd.io/etcd/server/v3 $ETCD
go_program coredns github.com/coredns/coredns $COREDNS
go_program crictl sigs.k8s.io/cri-tools/cmd/crictl $CRICTL
go_program local-path-provisioner github.com/rancher/local-path-provisioner $LOCAL_PATH
rootfs
docker import "$BUILD/rootfs.tar" localhost/kind-node-rootfs >/dev/null
printf 'FROM localhost/kind-node-rootfs\nENV container=docker\nSTOPSIGNAL SIGRTMIN+3\n' \
    | DOCKER_BUILDKIT=0 docker build -q -t localhost/kind-node-base - >/dev/null 2>"$BUILD/docker.log"
images
node
