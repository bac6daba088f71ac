#!/usr/bin/env bash
# Records the traces of lab/trace/data from nothing, on Debian 12 on amd64, as root (it installs packages). It takes
# about a quarter of an hour on two cores.
#
#   lab/trace/record/compile.sh [--check]
#
# With --check nothing is replaced: each trace is recorded again and compared with the one that is there.
#
# What is recorded: a C compiler of its time's kind on 32-bit PowerPC. GCC 3.4.6 is in Debian as the source of
# gcc-h8300-hms, whole and with its PowerPC port; built for powerpc-linux-gnu, as compiler and as what is compiled for,
# it is the native compiler. Assembler and linker are those of binutils 2.40, make is GNU make 4.3, the shell dash
# 0.5.12. All are linked statically, with a memset of plain stores (record/memset.c).
#
# Two things are compiled: three small sources in the manner of a kernel (record/sources), each by itself; and, by make,
# a folder of real ones: lib/e2p of e2fsprogs 1.47.0 (LGPL 2), which knows the structures of a file system on a disk. Of
# that build make, the compiler driver, the shell and the linker are recorded once, preprocessor, compiler and assembler
# for three of its sources.
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
    libc6-dev-powerpc-cross autoconf automake autopoint gettext pkg-config

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
[ -e gcc.done ] && [ -e as.done ] && [ -e others.done ] || apt-get "${own[@]}" update
fetch gcc-h8300-hms gcc-h8300-hms_3.4.6+dfsg2.orig.tar.gz \
    1626f9e00509268ca7c791528aca41258bfd5b784cb317cf2bccd68f2f63cfed
fetch binutils binutils_2.40.orig.tar.xz d78c2d2eb24a9be1e02f8854cb1bd435556d7f584fb6bfb6b07e6527d43fc41d
fetch make-dfsg make-dfsg_4.3.orig.tar.gz be4c17542578824e745f83bcd2a9ba264206187247cb6a5f5df99b0a9d1f9047
fetch dash dash_0.5.12.orig.tar.gz 6a474ac46e8b0b32916c4c60df694c82058d3297d8b385b74508030ca4a8f28a
fetch e2fsprogs e2fsprogs_1.47.0.orig.tar.gz 6667afde56eef0c6af26684974400e4d2288ea49e9441bf5e6229195d51a3578

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
            BUILD_LDFLAGS= cc1 xgcc
    )
    touch gcc.done
fi >gcc.log 2>&1

if [ ! -e as.done ]; then
    step "assembler and linker"
    rm -rf binutils-2.40 as-build
    tar xJf binutils_2.40.orig.tar.xz
    mkdir as-build
    cd as-build
    ../binutils-2.40/configure --build="$host" --host=$ppc --target=$ppc --disable-nls --disable-shared \
        --disable-plugins --disable-werror --disable-gdb --disable-gold --disable-gprof --disable-gprofng \
        --disable-binutils --disable-sim --disable-libdecnumber --disable-readline \
        --without-zstd --without-debuginfod --with-system-zlib=no \
        CFLAGS="-O2 -w" LDFLAGS=-static
    make -j"$jobs" MAKEINFO=true all-gas all-ld
    rm -f gas/as-new ld/ld-new
    make -C gas MAKEINFO=true LDFLAGS="-all-static $work/memset.o" as-new
    make -C ld MAKEINFO=true LDFLAGS="-all-static $work/memset.o" ld-new
    cd ..
    touch as.done
fi >as.log 2>&1

if [ ! -e others.done ]; then
    step "make, shell, and what is compiled"
    rm -rf make-4.3 dash-0.5.12 e2fsprogs-1.47.0
    mkdir make-4.3
    tar xzf make-dfsg_4.3.orig.tar.gz -C make-4.3 --strip-components=1
    tar xzf dash_0.5.12.orig.tar.gz
    tar xzf e2fsprogs_1.47.0.orig.tar.gz
    (
        cd make-4.3
        # Debian has taken the manual away, and named the Makefile twice in its place.
        sed -i 's# po/Makefile.in Makefile# po/Makefile.in#' configure.ac
        autoreconf -fi
        CC=$ppc-gcc CFLAGS="-O2 -w" LDFLAGS="-static $work/memset.o" \
            ./configure --build="$host" --host=$ppc --disable-nls --without-guile
        make -j"$jobs" -C lib
        make -j"$jobs" make
    )
    (
        cd dash-0.5.12
        ./autogen.sh
        CC=$ppc-gcc CFLAGS="-O2 -w" LDFLAGS="-static $work/memset.o" \
            ./configure --build="$host" --host=$ppc --without-libedit
        make CC_FOR_BUILD=gcc
    )
    (
        cd e2fsprogs-1.47.0
        CC=$ppc-gcc ./configure --build="$host" --host=$ppc --disable-nls --disable-fuse2fs
        make -j"$jobs" libs
    )
    touch others.done
fi >others.log 2>&1

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

step "traces of a build"
mkdir -p tree/bin tree/include/libc tree/e2p
cd tree
of=$work/e2fsprogs-1.47.0/lib
sources="getversion pe percent pf ps getflags setflags setversion uuid parse_num errcode ostype"
for source in $sources; do cp "$of/e2p/$source.c" e2p; done
cp "$here/kernel.mk" e2p/Makefile
cp "$of/config.h" "$of/dirpaths.h" include
for part in ext2fs e2p et uuid; do mkdir include/$part && cp "$of/$part"/*.h include/$part; done
cp -r "$work/gcc-h8300-hms-3.4.6+dfsg2/gcc/ginclude" include/gcc
cp -rL /usr/$ppc/include/. include/libc
$ppc-strip -o gcc "$work/gcc-build/gcc/xgcc"
$ppc-strip -o ld "$work/as-build/ld/ld-new"
$ppc-strip -o make "$work/make-4.3/make"
$ppc-strip -o sh "$work/dash-0.5.12/src/dash"
cp ../cc1 ../as .
# The programs that a recorded one starts run under the emulator too, unrecorded.
for program in cc1 as gcc ld make sh; do
    printf '#!/bin/sh\nexec qemu-ppc %s "$@"\n' "$PWD/$program" >bin/$program
    chmod +x bin/$program
done
cd e2p
record ../../build-make ../make
objects=$(for source in $sources; do echo "$source.o"; done)
# shellcheck disable=SC2086
record ../../build-ld ../ld -r -o e2p.o $objects
include="-nostdinc -I../include -I../include/e2p"
flags="-DHAVE_CONFIG_H $include -isystem ../include/gcc -isystem ../include/libc -Wall -O2 -fomit-frame-pointer $fixed"
# shellcheck disable=SC2086
record ../../build-gcc ../gcc -B../bin/ -no-integrated-cpp -pipe $flags -c -o pe.o pe.c
record ../../build-sh ../sh -c "( echo 'ifeq (,\$(strip \$(subst ,:,$flags)))'; echo 'FLAGS_UP_TO_DATE += pe.o'; \
    echo 'endif' ) > .pe.flags"
for source in getversion pe percent; do
    # What the driver calls them with, but for the pipe.
    # shellcheck disable=SC2086
    record ../../$source-cpp ../cc1 -E -quiet $flags -D__unix__ -D__gnu_linux__ -D__linux__ -Dunix -D__unix -Dlinux \
        -D__linux -Asystem=linux -Asystem=unix -Asystem=posix $source.c -o $source.i
    # shellcheck disable=SC2086
    record ../../$source-cc1 ../cc1 -fpreprocessed $source.i -quiet -dumpbase $source.c -auxbase-strip $source.o \
        $fixed -O2 -Wall -fomit-frame-pointer -o $source.s
    record ../../$source-as ../as -mppc -many -Qy -o $source.o $source.s
done
cd ../..

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
