/* Types and constants of a small kernel: what the sources beside this file include. */
#ifndef TYPES_H
#define TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long ulong;
typedef unsigned int size_t;
typedef int pid_t;

#define NULL ((void *)0)
#define HZ 100
#define PAGE_SHIFT 12
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#define PAGE_MASK (~(PAGE_SIZE - 1))

#define EPERM 1
#define ENOENT 2
#define ENOMEM 12
#define EINVAL 22

#define container(ptr, type, member) ((type *)((char *)(ptr) - (ulong)&((type *)0)->member))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

#endif
