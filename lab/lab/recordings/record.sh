#!/bin/sh
# Makes the three recordings beside this script anew: a `tar` that packs a small tree through gzip, a `cp -r` of the
# tree with some symbolic links, and a `git status` in a small repository. Needs strace, tar, gzip and git. Usage:
# record.sh [FOLDER], where FOLDER is where they go; here if absent.
#
# The programs run in an environment of their own, so that nothing of the user's is in the recordings: no locale, no
# home, no configuration. `-s 8` leaves out most of what was read and written, which `pageferry replay` does not need.
set -eu
to=$(cd "${1:-$(dirname "$0")}" && pwd)
work=/tmp/pageferry-recording
rm -rf "$work"
mkdir -p "$work"
cd "$work"
trap 'rm -rf "$work"' EXIT
clean() { env -i PATH=/usr/bin:/bin HOME=/nonexistent LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null "$@"; }
recorded() {
    out=$1
    shift
    clean strace -f -s 8 -T -o "$to/$out" -e trace=%file,%desc,%process "$@" > said 2>&1
}

mkdir -p tree/src/deep tree/doc
for i in 1 2 3 4 5 6 7 8; do
    seq $((i * 1000)) > tree/src/numbers-$i
    seq $((i * 10)) > tree/src/deep/few-$i
done
seq 30000 > tree/doc/long
: > tree/doc/empty
recorded tar.strace tar -czf tree.tar.gz tree

ln -s src/deep tree/way
ln -s long tree/doc/other
ln -s gone tree/dangling
recorded cp.strace cp -r tree copy

mkdir repository
cd repository
clean git init -q -b main .
for directory in a b c; do
    mkdir "$directory"
    for i in 1 2 3 4 5 6; do
        seq $((i * 150)) > "$directory/file-$i"
    done
done
clean git add .
clean git -c user.name=somebody -c user.email=somebody@example.org commit -q -m first
# One is changed, one is new, one is as it was but younger, one is gone.
echo more >> a/file-2
echo new > b/new
sleep 1
touch b/file-1
rm c/file-3
recorded git-status.strace git status
