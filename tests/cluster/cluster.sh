#!/bin/bash
# A cluster in namespaces: Slurm with two nodes, and an sshd, over an overlay of this machine's files. Nothing of it
# stays, and nothing outside can be reached from it. Root runs it:
#   unshare --mount --pid --net --uts --ipc --fork cluster.sh PACKAGES WORK SHOWN...
# PACKAGES: the unpacked packages. WORK: an empty folder for the overlay. SHOWN: folders that the nodes have to see. It
# prints "ready" once both nodes are idle, and runs until its standard input ends.
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
# Slurm's resolver wants an address that is not 127.0.0.1.
python3 - <<'P'
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
fcntl.ioctl(s, 0x8916, struct.pack("16shH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("10.9.9.1")))  # SIOCSIFADDR
P
hostname head
cd "$root"
mkdir -p old
pivot_root . old
cd /
umount -l /old
rmdir /old

mount -t tmpfs tmpfs /run
mkdir -p /run/munge /run/sshd /run/user /var/log/munge /var/lib/munge /var/log/slurm /var/spool/slurm/head /home
printf '127.0.0.1 localhost\n10.9.9.1 head n1 n2\n' >/etc/hosts
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
NodeName=n[1-2] NodeHostname=head NodeAddr=10.9.9.1 Port=[17001-17002] CPUs=4 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
C
for program in slurmctld slurmd slurmstepd; do # as update-alternatives does
        [ -e "/usr/sbin/$program" ] || ln -s "$program-wlm" "/usr/sbin/$program"
done
slurmctld
slurmd -N n1
slurmd -N n2

mkdir -p /etc/ssh
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
install -d -m 700 -o 1234 -g 1234 /home/alice/.ssh
ssh-keygen -q -t ed25519 -N '' -f /home/alice/.ssh/id_ed25519
cp /home/alice/.ssh/id_ed25519.pub /home/alice/.ssh/authorized_keys
printf 'head,n1,n2,10.9.9.1 %s\n' "$(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)" >/home/alice/.ssh/known_hosts
chown -R 1234:1234 /home/alice/.ssh
printf 'ListenAddress 10.9.9.1\nUsePAM no\nPasswordAuthentication no\n' >/etc/ssh/sshd_config
/usr/sbin/sshd

for _ in $(seq 300); do
        [ "$(sinfo -h -o %T%D 2>/dev/null)" = idle2 ] && break
        sleep 0.1
done
[ "$(sinfo -h -o %T%D)" = idle2 ] || { sinfo >&2; tail -n 5 /var/log/slurm/*.log >&2; exit 1; }
echo ready
cat >/dev/null
