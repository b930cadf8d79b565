#!/usr/bin/env bash
# runc for a machine that withholds capabilities: takes from a container's specification what this process does not have
# itself, then runs the real runc. A privileged container asks for every capability and fails otherwise.
set -euo pipefail
RUNC=${RUNC:-/usr/sbin/runc}
# In the order of their bits (linux/capability.h).
names=(CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
    SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
    MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE)
granted=$((16#$(sed -n 's/^CapBnd:\s*//p' /proc/self/status)))
missing=()
for bit in "${!names[@]}"; do
    ((granted >> bit & 1)) || missing+=("CAP_${names[bit]}")
done

previous=
for argument in "$@"; do
    case $previous in
        --bundle | -b) specification=$argument/config.json ;;
        --process | -p) specification=$argument ;;
    esac
    previous=$argument
done
if [ ${#missing[@]} -gt 0 ] && [ -n "${specification:-}" ] && [ -f "$specification" ]; then
    jq --argjson missing "$(printf '%s\n' "${missing[@]}" | jq -R . | jq -s .)" \
        'def less: if .capabilities then .capabilities |= map_values(. - $missing) else . end;
         if .process then .process |= less else less end' "$specification" >"$specification.new"
    mv "$specification.new" "$specification"
fi
exec "$RUNC" "$@"
