/* A run queue: who runs next, by counters that age, with real-time threads before all others. */
#include "types.h"
#include "list.h"

enum policy { OTHER, FIFO, ROUND };

struct space;

struct task {
	struct list run;
	enum policy policy;
	long counter;
	long nice;
	u32 level;
	int cpu;
	struct space *space;
};

static struct list ready;

struct task *pick(const struct task *before, struct task *idle)
{
	struct task *best = idle;
	long most = -1000;
	struct list *at;

	list_for_each(at, &ready) {
		struct task *task = container(at, struct task, run);
		long weight = task->counter;
		if (task->policy != OTHER)
			weight = 1000 + task->level;
		else if (weight)
			weight += (task->space == before->space) + 20 - task->nice;
		if (weight > most) {
			most = weight;
			best = task;
		}
	}
	return best;
}
