/* A cache of directory entries: (parent, name) to inode, by a hash table. */
#include "types.h"
#include "list.h"

#define NAME_MAX 24
#define CHAINS 256

struct name {
	struct list chain;
	u32 hash;
	u32 parent;
	u32 inode;
	u8 length;
	char text[NAME_MAX];
};

static struct list chains[CHAINS];
extern int memcmp(const void *a, const void *b, size_t n);

struct name *names_find(u32 parent, const char *text, size_t length)
{
	u32 hash = parent;
	size_t i;
	struct list *at;

	for (i = 0; i < length; i++)
		hash = (hash + (text[i] << 4)) * 11;
	list_for_each(at, &chains[hash % CHAINS]) {
		struct name *name = container(at, struct name, chain);
		if (name->hash == hash && name->parent == parent && name->length == length &&
		    !memcmp(name->text, text, length))
			return name;
	}
	return NULL;
}
