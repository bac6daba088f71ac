# What make is recorded with: each source is compiled by the driver, then a shell notes the flags that it was compiled
# with, as kernels' makefiles of the time do; the objects are linked into one.
CC = ../bin/gcc -B../bin/ -no-integrated-cpp -pipe
LD = ../bin/ld
SHELL = ../bin/sh
CFLAGS = -DHAVE_CONFIG_H -nostdinc -I../include -I../include/e2p -isystem ../include/gcc -isystem ../include/libc \
	-Wall -O2 -fomit-frame-pointer --param ggc-min-expand=30 --param ggc-min-heapsize=4096 -frandom-seed=1
OBJECTS = getversion.o pe.o percent.o pf.o ps.o getflags.o setflags.o setversion.o uuid.o parse_num.o errcode.o \
	ostype.o
comma = ,

all: e2p.o

e2p.o: $(OBJECTS)
	$(LD) -r -o $@ $(OBJECTS)

%.o: %.c
	$(CC) $(CFLAGS) -c -o $@ $<
	@ ( echo 'ifeq (,$$(strip $(subst $(comma),:,$(CFLAGS))))'; echo 'FLAGS_UP_TO_DATE += $@'; echo 'endif' ) > .$*.flags
