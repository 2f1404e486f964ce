#!/bin/bash
# A cluster in namespaces: Slurm with a head and three nodes, and an sshd on each, over an overlay of this machine's files.
# Each node has a namespace of each kind, and an address on the head's bridge: `ip link set n1 down` there cuts its link.
# They share files but /run/user, /tmp and /dev/shm. Nothing of it stays, and nothing outside can be reached from it. Root
# runs it:
#   unshare --mount --pid --net --uts --ipc --fork cluster.sh PACKAGES WORK SHOWN...
# PACKAGES: the unpacked packages. WORK: an empty folder for the overlay. SHOWN: folders that the nodes have to see. It
# prints "ready" once all nodes are idle, and runs until its standard input ends.
# Nodes are made with pivot_root: in a chroot nobody may make a user namespace.
set -e
packages=$1 work=$2 root=$2/root
shift 2
mount --make-rprivate /
mount -t tmpfs tmpfs "$work"
mkdir "$work"/{upper,overlay,root}
cp -a "$packages/." "$work/upper"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/overlay" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for folder; do
        # On a file system of its own it is not part of the overlay.
        [ -e "$root$folder/." ] && [ "$(ls -A "$root$folder")" ] && continue
        mkdir -p "$root$folder"
        mount --rbind "$folder" "$root$folder"
done
hostname head
cd "$root"
mkdir -p old
pivot_root . old
cd /
umount -l /old
rmdir /old

mount -t tmpfs tmpfs /run
ip link set lo up
ip link add bridge type bridge
ip addr add 10.9.9.1/24 dev bridge
ip link set bridge up
mkdir -p /run/munge /run/sshd /run/user /var/log/munge /var/lib/munge /var/log/slurm /var/spool/slurm/head /home
printf '127.0.0.1 localhost\n10.9.9.1 head\n10.9.9.11 n1\n10.9.9.12 n2\n10.9.9.13 n3\n' >/etc/hosts
printf 'munge:x:990:990::/nonexistent:/usr/sbin/nologin\nsshd:x:991:65534::/run/sshd:/usr/sbin/nologin\n' >>/etc/passwd
printf 'alice:x:1234:1234::/home/alice:/bin/bash\n' >>/etc/passwd
printf 'munge:x:990:\nalice:x:1234:\n' >>/etc/group
printf 'alice:*:19000::::::\nmunge:*:19000::::::\nsshd:*:19000::::::\n' >>/etc/shadow
install -d -o 1234 -g 1234 /home/alice

head -c 1024 /dev/urandom >/etc/munge/munge.key
chmod 600 /etc/munge/munge.key
chown -R 990:990 /etc/munge /run/munge /var/log/munge /var/lib/munge
chmod 755 /run/munge
setpriv --reuid 990 --regid 990 --clear-groups /usr/sbin/munged

cat >/etc/slurm/slurm.conf <<'C'
ClusterName=test
SlurmctldHost=head(10.9.9.1)
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
ReturnToService=2
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmdSpoolDir=/var/spool/slurm/%n
SlurmdLogFile=/var/log/slurm/%n.log
SlurmctldLogFile=/var/log/slurm/head.log
SlurmUser=root
StateSaveLocation=/var/spool/slurm/head
SwitchType=switch/none
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
KillWait=1
DefMemPerNode=1000
SchedulerParameters=batch_sched_delay=0
NodeName=n[1-3] CPUs=4 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
C
for program in slurmctld slurmd slurmstepd; do # as update-alternatives does
        [ -e "/usr/sbin/$program" ] || ln -s "$program-wlm" "/usr/sbin/$program"
done
slurmctld

mkdir -p /etc/ssh
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
install -d -m 700 -o 1234 -g 1234 /home/alice/.ssh
ssh-keygen -q -t ed25519 -N '' -f /home/alice/.ssh/id_ed25519
cp /home/alice/.ssh/id_ed25519.pub /home/alice/.ssh/authorized_keys
printf 'head,n1,n2,n3 %s\n' "$(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)" >/home/alice/.ssh/known_hosts
chown -R 1234:1234 /home/alice/.ssh
printf 'UsePAM no\nPasswordAuthentication no\n' >/etc/ssh/sshd_config

# node NUMBER: the first process of a node.
node() {
        mount --make-rprivate /
        mount -t proc proc /proc
        mkdir -p "/run/node/$1"
        mount --bind "/run/node/$1" /run/sshd
        for folder in /run/user /tmp /dev/shm; do mount -t tmpfs tmpfs "$folder"; done
        hostname "n$1"
        ip link set lo up
        until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
        ip addr add "10.9.9.1$1/24" dev eth0
        ip link set eth0 up
        /usr/sbin/sshd -o PidFile=none
        until slurmd -D -N "n$1" 2>/dev/null; do sleep 0.5; done & # this shell reaps what others leave
        wait
}
export -f node
for i in 1 2 3; do
        unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child bash -ec "node $i" <&- >&2 &
        parent=$! pid=
        until pid=$(pgrep -P "$parent" -x bash); do sleep 0.02; done
        ip link add "n$i" type veth peer name eth0 netns "$pid"
        ip link set "n$i" master bridge up
done

for _ in $(seq 300); do
        [ "$(sinfo -h -o %T%D 2>/dev/null)" = idle3 ] && break
        sleep 0.1
done
[ "$(sinfo -h -o %T%D)" = idle3 ] || { sinfo >&2; tail -n 5 /var/log/slurm/*.log >&2; exit 1; }
echo ready
cat >/dev/null
