#!/usr/bin/env bash
# Records the traces of lab/trace/data from nothing, on Debian 12 on amd64, as root (it installs packages). It takes
# about ten minutes on two cores.
#
#   lab/trace/record/compile.sh [--check]
#
# With --check nothing is replaced: each trace is recorded again and compared with the one that is there.
#
# What is recorded: a C compiler of its time's kind on 32-bit PowerPC. GCC 3.4.6 is in Debian as the source of
# gcc-h8300-hms, whole and with its PowerPC port; built for powerpc-linux-gnu, as compiler and as what is compiled for,
# it is the native compiler. The assembler is that of binutils 2.40. Both are linked statically, with a memset of plain
# stores (record/memset.c).
#
# The same bytes come out every time: programs see an empty environment and a fixed stack, seed and kernel release, and
# the folder has a fixed name, since paths are on the stack. WORK=DIR chooses another one; the traces then differ in a
# few addresses. The packages' versions matter too: the C library and the compiler that builds are in the traces.
#
# Fails when a package, the registry or a checksum does; what is there is then as it was.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
work=${WORK:-/tmp/pageferry-trace}
jobs=${JOBS:-2}
check=
case "${1:-}" in
    "") ;;
    --check) check=1 ;;
    *) echo "usage: compile.sh [--check], not: $1" >&2; exit 2 ;;
esac
mkdir -p "$work"
cd "$work"

# Not the standard output, which parts below write to logs.
exec 3>&1
step() { printf '\n== %s\n' "$*" >&3; }
trap 'echo "compile.sh: failed in line $LINENO; logs are in $work" >&2' ERR

step "packages"
apt-get install -y --no-install-recommends gcc libc6-dev make bison flex xz-utils qemu-user gcc-powerpc-linux-gnu \
    libc6-dev-powerpc-cross

step "sources"
# A list of its own: the system's stays as it is.
echo "deb-src http://deb.debian.org/debian bookworm main" >src.list
mkdir -p lists/partial
own=(-o "Dir::Etc::sourcelist=$work/src.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$work/lists" -o APT::Sandbox::User=root)
fetch() { # package, file, SHA-256
    [ -e "$2" ] || apt-get "${own[@]}" source --download-only --tar-only "$1"
    echo "$3  $2" | sha256sum --check
}
[ -e gcc.done ] && [ -e as.done ] || apt-get "${own[@]}" update
fetch gcc-h8300-hms gcc-h8300-hms_3.4.6+dfsg2.orig.tar.gz \
    1626f9e00509268ca7c791528aca41258bfd5b784cb317cf2bccd68f2f63cfed
fetch binutils binutils_2.40.orig.tar.xz d78c2d2eb24a9be1e02f8854cb1bd435556d7f584fb6bfb6b07e6527d43fc41d

old="-std=gnu89 -fcommon -w"
ppc=powerpc-linux-gnu
host=$(gcc -dumpmachine)
export MAKEINFO=true

if [ ! -e gcc.done ]; then
    step "compiler"
    rm -rf gcc-h8300-hms-3.4.6+dfsg2 gcc-build
    tar xzf gcc-h8300-hms_3.4.6+dfsg2.orig.tar.gz
    sources=$work/gcc-h8300-hms-3.4.6+dfsg2
    build=$work/gcc-build
    # Its configure knows neither host nor library of today; libiberty is needed twice, for the programs that make parts
    # of the compiler and for the compiler.
    mkdir -p "$build/build-$host/libiberty" "$build/libiberty" "$build/gcc"
    (
        cd "$build/build-$host/libiberty"
        CC="gcc $old" CFLAGS=-O1 "$sources/libiberty/configure" --build="$host" --host="$host" --target="$host"
        make -j"$jobs" libiberty.a
    )
    (
        cd "$build/libiberty"
        CC="$ppc-gcc $old" CFLAGS=-O2 AR=$ppc-ar RANLIB=$ppc-ranlib \
            "$sources/libiberty/configure" --build="$host" --host=$ppc --target=$ppc
        make -j"$jobs" libiberty.a
    )
    $ppc-gcc -O2 -c -o memset.o "$here/memset.c"
    (
        cd "$build/gcc"
        CC="$ppc-gcc $old" CC_FOR_BUILD="gcc $old" AR=$ppc-ar RANLIB=$ppc-ranlib \
            "$sources/gcc/configure" --build="$host" --host=$ppc --target=$ppc --enable-languages=c --disable-nls \
            --disable-multilib --disable-shared --without-headers --with-gnu-as --with-gnu-ld
        make -j"$jobs" CC_FOR_BUILD="gcc $old" CFLAGS="-O2 -fno-strict-aliasing" LDFLAGS="-static $work/memset.o" \
            BUILD_LDFLAGS= cc1
    )
    touch gcc.done
fi >gcc.log 2>&1

if [ ! -e as.done ]; then
    step "assembler"
    rm -rf binutils-2.40 as-build
    tar xJf binutils_2.40.orig.tar.xz
    mkdir as-build
    cd as-build
    ../binutils-2.40/configure --build="$host" --host=$ppc --target=$ppc --disable-nls --disable-shared \
        --disable-plugins --disable-werror --disable-gdb --disable-ld --disable-gold --disable-gprof \
        --disable-gprofng --disable-binutils --disable-sim --disable-libdecnumber --disable-readline \
        --without-zstd --without-debuginfod --with-system-zlib=no \
        CFLAGS="-O2 -w" LDFLAGS=-static
    make -j"$jobs" MAKEINFO=true all-gas
    rm -f gas/as-new
    make -C gas MAKEINFO=true LDFLAGS="-all-static $work/memset.o" as-new
    cd ..
    touch as.done
fi >as.log 2>&1

step "the command"
(cd "$root" && cargo build --release --quiet)
pageferry=${CARGO_TARGET_DIR:-$root/target}/release/pageferry

step "traces"
rm -rf run
mkdir run
cd run
$ppc-strip -o cc1 ../gcc-build/gcc/cc1
$ppc-strip -o as ../as-build/gas/as-new
cp "$here"/sources/* .
# The collector's two settings would otherwise be made from the host's memory, and the seed from the time.
fixed="--param ggc-min-expand=30 --param ggc-min-heapsize=4096 -frandom-seed=1"
record() { # trace, command...
    "$pageferry" trace record --arch ppc --out "$1.pft" -- "${@:2}"
}
for source in names runq text; do
    # shellcheck disable=SC2086
    record $source-cpp ./cc1 -E -quiet -I. $fixed $source.c -o $source.i
    # shellcheck disable=SC2086
    record $source-cc1 ./cc1 -fpreprocessed -quiet -O2 -ffreestanding $fixed $source.i -o $source.s
    record $source-as ./as -o $source.o $source.s
done
# The preprocessor does much the same for each.
rm runq-cpp.pft text-cpp.pft

if [ -n "$check" ]; then
    step "compared with those that are there"
    for trace in *.pft; do
        cmp "$trace" "$here/../data/$trace"
    done
    echo "all are the same"
else
    mv ./*.pft "$here/../data/"
    ls -l "$here/../data"
fi
