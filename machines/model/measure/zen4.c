/* What machines/today.toml takes from the processor itself: an EPYC of the fourth generation, from a user's program.
   Prints the CPUID leaves that name caches and TLBs, then times in cycles of the core's clock, which is measured by a
   chain of additions. Each is the least of many short runs, so that a busy host shows less.
   Build and run: cc -O2 -mavx2 zen4.c && ./a.out */
#define _GNU_SOURCE
#include <cpuid.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double cycle_ns;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* The least time of one of `count` in so many runs of what follows, in nanoseconds. */
#define LEAST(result, runs, count, ...)                    \
    for (int run_ = 0; run_ < (runs); run_++) {           \
        double from_ = now();                             \
        __VA_ARGS__;                                      \
        double each_ = (now() - from_) / (count);         \
        if (run_ == 0 || each_ < (result)) result = each_; \
    }

static uint64_t seed = 88172645463325252ull;

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

/* Memory at a multiple of 2 MB, all of it touched. */
static char *memory(size_t size, int advice) {
    size_t unit = 2 << 20;
    char *p = mmap(0, size + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p = (char *)(((uintptr_t)p + unit - 1) & ~(uintptr_t)(unit - 1));
    madvise(p, size, advice);
    return memset(p, 1, size);
}

/* Cycles of a dependent load, where `count` lines, `stride` bytes apart, are followed in a random circle. */
static double chase(char *base, size_t count, size_t stride) {
    size_t *order = malloc(count * sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = i;
    for (size_t i = count - 1; i > 0; i--) {
        size_t j = next_random() % i, kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (size_t i = 0; i < count; i++)
        *(void **)(base + order[i] * stride) = base + order[(i + 1) % count] * stride;
    void **p = (void **)base;
    for (size_t i = 0; i < count; i++) p = *p;
    double least = 0;
    LEAST(least, 300, 100000, for (int i = 0; i < 100000; i++) p = *p);
    __asm__ volatile("" ::"r"(p));
    free(order);
    return least / cycle_ns;
}

/* Cycles a line, where `size` bytes are read, written or copied again and again. */
static void stream(char *from, char *to, size_t size) {
    double read = 0, written = 0, copied = 0;
    int turns = size < 8 << 20 ? (8 << 20) / size : 1;
    double lines = (double)turns * (size / 64);
    LEAST(read, 100, lines, for (int k = 0; k < turns; k++) for (size_t i = 0; i < size; i += 64) {
        __asm__ volatile("vmovdqa (%0),%%ymm0; vmovdqa 32(%0),%%ymm1" ::"r"(from + i) : "xmm0", "xmm1");
    });
    LEAST(written, 100, lines, for (int k = 0; k < turns; k++) for (size_t i = 0; i < size; i += 64) {
        __asm__ volatile("vmovdqa %%ymm0,(%0); vmovdqa %%ymm0,32(%0)" ::"r"(to + i) : "memory");
    });
    LEAST(copied, 100, lines, for (int k = 0; k < turns; k++) for (size_t i = 0; i < size; i += 4096) {
        void *d = to + i, *s = from + i;
        size_t n = 4096;
        __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    });
    printf("%8zu KB: read %.2f, write %.2f, rep movsb of 4 KB pieces %.2f cycles a line\n", size >> 10,
        read / cycle_ns, written / cycle_ns, copied / cycle_ns);
}

/* Cycles of mprotect() that takes the right to write from so many pages, which all were written just before. Linux
   invalidates up to 33 pages one by one (INVLPG), and more by loading CR3: the difference of the slopes is INVLPG,
   the step between is what CR3 takes. */
static double protect(char *base, int pages) {
    double least = 0;
    for (int run = 0; run < 1500; run++) {
        for (int i = 0; i < pages; i++) base[i * 4096] = 1;
        double from = now();
        mprotect(base, pages * 4096, PROT_READ);
        double each = now() - from;
        if (run == 0 || each < least) least = each;
        mprotect(base, pages * 4096, PROT_READ | PROT_WRITE);
    }
    return least / cycle_ns;
}

int main(void) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    unsigned a, b, c, d;
    for (unsigned leaf = 0x80000005; leaf <= 0x80000006; leaf++) {
        __cpuid(leaf, a, b, c, d);
        printf("CPUID %x: %08x %08x %08x %08x\n", leaf, a, b, c, d);
    }
    for (unsigned i = 0; i < 4; i++) {
        __cpuid_count(0x8000001d, i, a, b, c, d);
        printf("CPUID 8000001d, %u: %u ways, %u sets, lines of %u bytes%s\n", i, (b >> 22) + 1, c + 1,
            (b & 0xfff) + 1, d & 2 ? ", inclusive" : "");
    }
    uint64_t x = 1, word = 0;
    LEAST(cycle_ns, 3000, 100000,
        for (int i = 0; i < 1000; i++) __asm__ volatile(".rept 100\nadd $1,%0\n.endr" : "+r"(x)));
    printf("clock: %.3f GHz\n", 1 / cycle_ns);
    double least = 0;
    LEAST(least, 1000, 20000, for (int i = 0; i < 20000; i++) __asm__ volatile("lock addq $1,%0" : "+m"(word)));
    printf("lock add: %.1f cycles\n", least / cycle_ns);
    LEAST(least, 3000, 200, for (int i = 0; i < 200; i++) {
        long call = -1;
        __asm__ volatile("syscall" : "+a"(call)::"rcx", "r11", "memory");
    });
    printf("a system call that does not exist: %.0f cycles\n", least / cycle_ns);
    char *huge = memory(256 << 20, MADV_HUGEPAGE), *small = memory(4 << 20, MADV_NOHUGEPAGE);
    for (size_t kb = 16; kb <= 4096; kb *= 4) printf("load, %zu KB: %.1f cycles\n", kb, chase(huge, kb * 16, 64));
    for (size_t n = 64; n <= 512; n *= 2) printf("load, %zu pages: %.1f cycles\n", n, chase(small, n, 4160));
    for (size_t size = 8 << 10; size <= 128 << 20; size *= 4) stream(huge, huge + (128 << 20), size);
    double few = protect(small, 9), ceiling = protect(small, 33), beyond = protect(small, 34);
    double many = protect(small, 134), page = (many - beyond) / 100, single = (ceiling - few) / 24;
    printf("INVLPG: %.0f cycles; a load of CR3: %.0f\n", single - page,
        beyond - page - (ceiling - 33 * (single - page)));
}
