/* Intrusive doubly linked list. Links live inside the objects; whoever owns
 * the head owns the links. One thread only. */
#ifndef FAB_LIST_H
#define FAB_LIST_H

#include <stddef.h>

struct fab_link {
	struct fab_link *prev; /* NULL when in no list */
	struct fab_link *next;
};

static inline void fab_list_construct(struct fab_link *head)
{
	head->prev = head->next = head;
}

static inline int fab_list_empty(const struct fab_link *head)
{
	return head->next == head;
}

static inline int fab_link_listed(const struct fab_link *link)
{
	return link->prev != NULL;
}

static inline void fab_list_append(struct fab_link *head, struct fab_link *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void fab_list_remove(struct fab_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	link->prev = link->next = NULL;
}

/* Move all links of `from` to the empty list `to`. */
static inline void fab_list_take(struct fab_link *to, struct fab_link *from)
{
	fab_list_construct(to);
	if (fab_list_empty(from))
		return;
	*to = *from;
	to->next->prev = to->prev->next = to;
	fab_list_construct(from);
}

#define FAB_ENTRY(link, type, member) \
	((type *) (void *) ((char *) (link) - offsetof(type, member)))

#endif
