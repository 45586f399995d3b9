/* places.h: Q1 to Q3, on a file that looks like the provider's. That it does
 * is shown where processes meet more than 256 others (two_process). */
#include "endpoint_file.h"
#include "places.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where nothing is mapped. */
#define NOWHERE ((void *) 4096)

static struct fab_places *open_places(const struct endpoint_file *file)
{
	char uri[128];

	snprintf(uri, sizeof(uri), "fi_shm://%s", file->name);
	return fab_places_open(uri);
}

static int is_known(const struct endpoint_file *file)
{
	struct fab_places *places = open_places(file);

	fab_places_close(places);
	return places != NULL;
}

static void test_known_layout(void) /* Q1 */
{
	static const struct {
		size_t offset;
		uint64_t right, wrong;
	} numbers[] = {
		{168, FILE_PLACES, 0},
		{168, FILE_PLACES, FILE_PLACES - 8},
		{168, FILE_PLACES, FILE_PLACES - 4},
		{168, FILE_PLACES, FILE_NAME + 64},
		{168, FILE_PLACES, UINT64_MAX},
		{176, FILE_NAME, FILE_NAME - 64},
		{176, FILE_NAME, FILE_NAME + 64},
		{176, FILE_NAME, UINT64_MAX - 255},
	};
	struct endpoint_file file;

	CHECK(!fab_places_open("fi_shm://places_test.nobody"));
	file_make(&file, -1, "layout");
	CHECK(is_known(&file));
	for (unsigned char version = 0; version < 20; version++) {
		file.bytes[0] = version;
		CHECK(is_known(&file) == (version == 10));
	}
	file.bytes[0] = 10;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		put(&file, numbers[i].offset, numbers[i].wrong);
		CHECK(!is_known(&file));
		put(&file, numbers[i].offset, numbers[i].right);
	}
	file.bytes[FILE_NAME]++;
	CHECK(!is_known(&file));
	file.bytes[FILE_NAME]--;
	place(&file, 0)->id = 0;
	CHECK(!is_known(&file));
	place(&file, 0)->id = -1;
	place(&file, FILE_COUNT - 1)->name_sent = 1;
	CHECK(!is_known(&file));
	place(&file, FILE_COUNT - 1)->name_sent = 0;
	CHECK(is_known(&file));
	file_remove(&file);
}

static void test_empty_file(void) /* Q1 */
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "places_test.%d.empty", (int) getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && !fab_places_open(name));
	CHECK(!ftruncate(fd, 8) && !fab_places_open(name));
	close(fd);
	shm_unlink(name);
}

static int is_met(const struct endpoint_file *file, uint32_t index)
{
	return place(file, index)->id == index &&
	       place(file, index)->name_sent &&
	       place(file, index)->local_region;
}

static int is_new(const struct endpoint_file *file, uint32_t index)
{
	return place(file, index)->id == -1 && !place(file, index)->name_sent &&
	       !place(file, index)->local_region;
}

static void test_clear_one(void) /* Q2 */
{
	struct endpoint_file mine, left, right;
	struct fab_places *places;
	struct fab_place *found;

	file_make(&mine, -1, "mine");
	file_make(&left, -1, "left");
	file_make(&right, -1, "right");
	places = open_places(&mine);
	CHECK(places);
	CHECK(!fab_places_find(places, left.name));
	meet(&mine, 3, NOWHERE);
	meet(&mine, 7, left.bytes);
	meet(&mine, FILE_COUNT - 1, right.bytes);
	found = fab_places_find(places, right.name);
	CHECK(found);
	fab_places_leave(found);
	place(&mine, FILE_COUNT - 1)->id = 1; /* it reads only now */
	fab_places_sweep(places);
	CHECK(is_new(&mine, FILE_COUNT - 1));
	CHECK(is_met(&mine, 3) && is_met(&mine, 7));
	CHECK(!fab_places_find(places, right.name));
	found = fab_places_find(places, left.name);
	fab_places_leave(found);
	fab_places_sweep(places);
	CHECK(is_new(&mine, 7) && is_met(&mine, 3));
	fab_places_close(places);
	file_remove(&mine);
	file_remove(&left);
	file_remove(&right);
}

/* Who never answered has no memory here that would tell who it is. */
static void test_clear_unanswered(void) /* Q2 */
{
	struct endpoint_file mine, other;
	struct fab_places *places;

	file_make(&mine, -1, "mine");
	file_make(&other, -1, "other");
	places = open_places(&mine);
	CHECK(places);
	meet(&mine, 1, other.bytes);
	place(&mine, 2)->name_sent = 1;
	fab_places_leave(fab_places_find(places, "nobody"));
	fab_places_sweep(places);
	CHECK(is_new(&mine, 2) && is_met(&mine, 1));
	fab_places_close(places);
	file_remove(&mine);
	file_remove(&other);
}

/* How many of a round are gone; the last one's name. */
static int count_gone(struct fab_places *places, char *name)
{
	char each[FAB_PLACE_NAME_BYTES];
	struct fab_place *gone = NULL;
	int count = 0;

	while ((gone = fab_places_gone(places, gone, each))) {
		strcpy(name, each);
		count++;
	}
	return count;
}

static void test_file(void)
{
	struct endpoint_file first, second;
	uint64_t number;

	CHECK(!fab_place_file("places_test.nobody"));
	CHECK(fab_place_is_gone("places_test.nobody", 0));
	file_make(&first, -1, "again");
	number = fab_place_file(first.name);
	CHECK(number && !fab_place_is_gone(first.name, 0));
	CHECK(!fab_place_is_gone(first.name, number));
	shm_unlink(first.name);
	CHECK(fab_place_is_gone(first.name, number));
	file_make(&second, -1, "again"); /* the first is still mapped */
	CHECK(!fab_place_is_gone(first.name, 0));
	CHECK(fab_place_is_gone(first.name, number));
	file_remove(&first);
	file_remove(&second);
}

static void test_gone(void) /* Q3 */
{
	char gone[FAB_PLACE_NAME_BYTES] = "";
	struct endpoint_file mine, here, closed, killed;
	struct fab_places *places;

	file_make(&mine, -1, "mine");
	file_make(&here, -1, "here");
	file_make(&closed, -1, "closed");
	file_make(&killed, ended_process(), "killed");
	places = open_places(&mine);
	CHECK(places);
	meet(&mine, 1, here.bytes);
	meet(&mine, 4, NOWHERE);
	meet(&mine, 9, closed.bytes);
	CHECK(!count_gone(places, gone) && !count_gone(places, gone));
	shm_unlink(closed.name);
	CHECK(!count_gone(places, gone));
	CHECK(count_gone(places, gone) == 1 && !strcmp(gone, closed.name));
	fab_places_leave(fab_places_find(places, closed.name));
	CHECK(!count_gone(places, gone) && !count_gone(places, gone));

	/* Another one has got the place: the first look does not count. */
	meet(&mine, 9, killed.bytes);
	CHECK(!count_gone(places, gone));
	CHECK(count_gone(places, gone) == 1 && !strcmp(gone, killed.name));
	meet(&mine, 0, killed.bytes);
	CHECK(count_gone(places, gone) == 1 && count_gone(places, gone) == 2);
	fab_places_close(places);
	file_remove(&mine);
	file_remove(&here);
	file_remove(&closed);
	file_remove(&killed);
}

int main(void)
{
	test_known_layout();
	test_empty_file();
	test_clear_one();
	test_clear_unanswered();
	test_file();
	test_gone();
	return 0;
}
