/* Rings of nodes: a head points at itself when it is empty. */
#ifndef LIST_H
#define LIST_H

#include "types.h"

struct list {
	struct list *next, *prev;
};

#define list_for_each(pos, head) for (pos = (head)->next; pos != (head); pos = pos->next)

#endif
