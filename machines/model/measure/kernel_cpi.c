/* What a kernel's instructions take where its data is in the caches, for `cpu.cpi_milli` of machines/today.toml. A
   program without counters cannot count the kernel's instructions, so it runs twice: on the processor, where a call
   takes cycles, and as the first process of a kernel under an emulator whose clock goes on by one nanosecond with each
   instruction, where the same call takes as many nanoseconds as instructions. Each is the least of many short runs. It
   says both for calls alone, and for calls between which a program's own code fills the first-level cache. What a call
   that does not exist takes is to be taken off, once for each call.

   The emulator counts each step of REP as an instruction. So the counted kernel must not know ERMS and FSRM, by which
   it would move bytes so, nor clear all memory that it allocates (init_on_alloc), which the other does not.

   Build: cc -O2 -static -o init kernel_cpi.c
   On the processor: ./init
   Counted: echo init | cpio -o -H newc > initrd, and
   qemu-system-x86_64 -M q35 -cpu EPYC-Milan,-erms,-fsrm -m 512 -icount shift=0 -nographic -no-reboot \
       -kernel vmlinuz -initrd initrd -append "console=ttyS0 quiet panic=-1 rdinit=/init init_on_alloc=0" */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int pipes[2], local[2], tcp[2], file;
static char byte[4096];

static void no_call(void) { syscall(-1); }

static void getppid_call(void) { syscall(SYS_getppid); }

static void pipe_calls(void) {
    if (write(pipes[1], byte, 1) != 1 || read(pipes[0], byte, 1) != 1) _exit(1);
}

static void poll_call(void) {
    struct pollfd polled = {pipes[0], POLLIN, 0};
    poll(&polled, 1, 0);
}

static void pread_call(void) {
    if (pread(file, byte, 1, 0) != 1) _exit(1);
}

static void stat_call(void) {
    struct stat found;
    stat("/tmp/kernel_cpi", &found);
}

static void open_calls(void) { close(open("/tmp/kernel_cpi", O_RDONLY)); }

static void mmap_calls(void) { munmap(mmap(0, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 65536); }

static void local_calls(void) {
    if (send(local[0], byte, 1, 0) != 1 || recv(local[1], byte, 1, 0) != 1) _exit(1);
}

static void tcp_calls(void) {
    if (send(tcp[0], byte, 1, 0) != 1 || recv(tcp[1], byte, 1, 0) != 1) _exit(1);
}

static const struct {
    const char *name;
    int calls;
    void (*run)(void);
} kinds[] = {
    {"a call that does not exist", 1, no_call},
    {"getppid", 1, getppid_call},
    {"pipe: write and read a byte", 2, pipe_calls},
    {"poll of a pipe", 1, poll_call},
    {"pread of a byte", 1, pread_call},
    {"stat", 1, stat_call},
    {"open and close", 2, open_calls},
    {"mmap and munmap", 2, mmap_calls},
    {"local socket: send and receive a byte", 2, local_calls},
    {"TCP over loopback: send and receive a byte", 2, tcp_calls},
};

/* So much code: in each line a jump to the next, so that each takes a place in the cache and little time. */
static void (*code(size_t bytes))(void) {
    unsigned char *at = mmap(0, bytes + 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 0x90, bytes + 4096);
    for (size_t line = 0; line < bytes; line += 64) {
        at[line] = 0xeb;
        at[line + 1] = 62;
    }
    at[bytes] = 0xc3;
    return (void (*)(void))at;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* The least time of a turn, in nanoseconds, where each makes these calls (or none) and runs this code (or none). */
static double least(void (*calls)(void), void (*between)(void)) {
    double found = 0;
    for (int run = 0; run < 1500; run++) {
        double from = now();
        for (int i = 0; i < 20; i++) {
            if (between) between();
            if (calls) calls();
        }
        double each = (now() - from) / 20;
        if (run == 0 || each < found) found = each;
    }
    return found;
}

int main(void) {
    int is_first = getpid() == 1;
    if (is_first) mkdir("/tmp", 0700);
    file = open("/tmp/kernel_cpi", O_RDWR | O_CREAT, 0600);
    if (write(file, byte, 4096) != 4096 || pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, local)) return 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (is_first) ioctl(listener, SIOCSIFFLAGS, &loopback);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (void *)&address, length) || listen(listener, 1)) return 1;
    getsockname(listener, (void *)&address, &length);
    tcp[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(tcp[0], (void *)&address, length) || (tcp[1] = accept(listener, 0, 0)) < 0) return 1;

    void (*between)(void) = code(256 << 10);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        double warm = least(kinds[kind].run, 0), cold = least(kinds[kind].run, between) - least(0, between);
        printf("%s,%d,%.1f,%.1f\n", kinds[kind].name, kinds[kind].calls, warm, cold);
        fflush(stdout);
    }
    unlink("/tmp/kernel_cpi");
    if (is_first) reboot(RB_POWER_OFF);
}
