#!/bin/sh
# Build a current Slurm from its public source, for the tests on real Slurm:
#
#     tests/support/slurm/build_slurm.sh slurm-25-11-7-1 /opt/slurm-25.11    # a tag of its repository, and a prefix
#     SLURM_PREFIX=/opt/slurm-25.11 python -m pytest -m slurm
#
# Needs git, a C compiler, make, and the headers of munge and MariaDB (Debian: build-essential git libmunge-dev
# libmariadb-dev; slurmdbd needs the latter), and munge and MariaDB themselves to run. Several slurmd on one host need
# --enable-multiple-slurmd. Not a part of CI. Set SLURM_SOURCE to a directory that has the source already.
set -eu

[ $# -eq 2 ] || { sed -n '2,9p' "$0" >&2; exit 2; }
tag=$1 prefix=$2
source=${SLURM_SOURCE:-}
if [ -z "$source" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    source=$work/slurm
    git clone --depth 1 --branch "$tag" https://github.com/SchedMD/slurm.git "$source"
fi
cd "$source"
./configure --prefix="$prefix" --sysconfdir="$prefix/etc" --enable-multiple-slurmd --with-munge \
    --disable-x11 --without-json --without-http-parser --without-yaml --without-jwt
make -j "$(nproc)"
make install
"$prefix/sbin/slurmctld" -V
