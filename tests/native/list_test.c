/* list.h: order, removal from any place, and taking a whole list. */
#include "check.h"
#include "list.h"

#include <string.h>

struct item {
	int number;
	struct fab_link link;
};

static void number_items(struct item *items, int count)
{
	memset(items, 0, (size_t) count * sizeof(*items));
	for (int i = 0; i < count; i++)
		items[i].number = i;
}

static int number_at(const struct fab_link *link)
{
	return FAB_ENTRY(link, const struct item, link)->number;
}

/* The list holds exactly these numbers, read in both directions. */
static void check_numbers(const struct fab_link *head, const int *numbers,
			  int count)
{
	const struct fab_link *link = head->next;

	for (int i = 0; i < count; i++, link = link->next)
		CHECK(link != head && number_at(link) == numbers[i]);
	CHECK(link == head);
	link = head->prev;
	for (int i = count; i-- > 0; link = link->prev)
		CHECK(link != head && number_at(link) == numbers[i]);
	CHECK(link == head);
	CHECK(fab_list_empty(head) == (count == 0));
}

static void test_append_and_remove(void)
{
	struct fab_link head;
	struct item items[4];

	number_items(items, 4);
	fab_list_construct(&head);
	check_numbers(&head, NULL, 0);
	for (int i = 0; i < 4; i++) {
		CHECK(!fab_link_listed(&items[i].link));
		fab_list_append(&head, &items[i].link);
		CHECK(fab_link_listed(&items[i].link));
	}
	check_numbers(&head, (const int[]) {0, 1, 2, 3}, 4);
	fab_list_remove(&items[1].link);
	CHECK(!fab_link_listed(&items[1].link));
	check_numbers(&head, (const int[]) {0, 2, 3}, 3);
	fab_list_remove(&items[0].link);
	fab_list_remove(&items[3].link);
	check_numbers(&head, (const int[]) {2}, 1);
	fab_list_append(&head, &items[0].link);
	check_numbers(&head, (const int[]) {2, 0}, 2);
	fab_list_remove(&items[2].link);
	fab_list_remove(&items[0].link);
	check_numbers(&head, NULL, 0);
}

static void test_take(void)
{
	struct fab_link from, to;
	struct item items[3];

	number_items(items, 3);
	fab_list_construct(&from);
	fab_list_take(&to, &from);
	check_numbers(&to, NULL, 0);
	check_numbers(&from, NULL, 0);
	for (int i = 0; i < 3; i++) {
		fab_list_append(&from, &items[i].link);
		fab_list_take(&to, &from);
		check_numbers(&from, NULL, 0);
		check_numbers(&to, (const int[]) {0, 1, 2}, i + 1);
		fab_list_take(&from, &to);
		check_numbers(&to, NULL, 0);
	}
	/* A link leaves the list it is in now, not the one it came from. */
	fab_list_take(&to, &from);
	fab_list_remove(&items[0].link);
	check_numbers(&to, (const int[]) {1, 2}, 2);
}

int main(void)
{
	test_append_and_remove();
	test_take();
	return 0;
}
