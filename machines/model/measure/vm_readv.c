/* A copy between processes by one system call: process_vm_readv(), by size. A child on another CPU has written a buffer
   and sleeps; this process reads it into a buffer of its own, again and again. Prints the median of many calls, in MB
   (10^6 bytes) a second.
   Build and run: cc -O2 vm_readv.c && ./a.out */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4 << 20, TURNS = 301 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void on_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static int by_value(const void *a, const void *b) {
    double d = *(double *)a - *(double *)b;
    return (d > 0) - (d < 0);
}

static double median(double *all) {
    qsort(all, TURNS, sizeof *all, by_value);
    return all[TURNS / 2];
}

static char *memory(void) {
    char *p = mmap(0, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, MOST, MADV_NOHUGEPAGE);
    return memset(p, 1, MOST);
}

int main(void) {
    char *theirs = memory(), *ours = memory();
    for (size_t size = 4 << 10; size <= MOST; size *= 2) {
        pid_t child = fork();
        if (child == 0) {
            on_cpu(1);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            memset(theirs, 2, MOST);
            for (;;) pause();
        }
        on_cpu(0);
        usleep(50000);
        double read_in[TURNS];
        for (int i = 0; i < TURNS; i++) {
            struct iovec to = {ours, size}, at = {theirs, size};
            double from = now();
            if (process_vm_readv(child, &to, 1, &at, 1, 0) != (ssize_t)size) return 1;
            read_in[i] = now() - from;
        }
        double read_ns = median(read_in);
        printf("%5zu KB: %.2f us, %.0f MB/s\n", size >> 10, read_ns / 1000, size * 1000.0 / read_ns);
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
    }
}
