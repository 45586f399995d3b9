/* places.h: Q1 to Q3, on a file that looks like the provider's. That it does
 * is shown where processes meet more than 256 others (two_process). */
#include "check.h"
#include "places.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	COUNT = 256,
	STRIDE = 64,
	PLACES = 4096 + 32,
	NAME = PLACES + COUNT * STRIDE,
	BYTES = NAME + 256,
};

/* As the provider has it. */
struct place {
	int64_t id;
	uint32_t sar_status;
	uint16_t name_sent;
	uint16_t ipc_valid;
	uint64_t local_region;
};

struct file {
	char name[64];
	unsigned char *bytes;
};

static struct place *place(const struct file *file, uint32_t index)
{
	return (void *) (file->bytes + PLACES + STRIDE * index);
}

static void put(struct file *file, size_t offset, uint64_t value)
{
	memcpy(file->bytes + offset, &value, sizeof(value));
}

static void file_make(struct file *file, const char *what)
{
	int fd;

	snprintf(file->name, sizeof(file->name), "places_test.%d.%s",
		 (int) getpid(), what);
	fd = shm_open(file->name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, BYTES));
	file->bytes =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(file->bytes != MAP_FAILED);
	close(fd);
	file->bytes[0] = 10;
	put(file, 168, PLACES);
	put(file, 176, NAME);
	strcpy((char *) file->bytes + NAME, file->name);
	for (uint32_t i = 0; i < COUNT; i++)
		place(file, i)->id = -1;
}

static void file_remove(struct file *file)
{
	munmap(file->bytes, BYTES);
	shm_unlink(file->name);
}

static struct fab_places *open_places(const struct file *file)
{
	char uri[128];

	snprintf(uri, sizeof(uri), "fi_shm://%s", file->name);
	return fab_places_open(uri);
}

static int is_known(const struct file *file)
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
		{168, PLACES, 0},          {168, PLACES, PLACES - 8},
		{168, PLACES, PLACES - 4}, {168, PLACES, NAME + 64},
		{168, PLACES, UINT64_MAX}, {176, NAME, NAME - 64},
		{176, NAME, NAME + 64},    {176, NAME, UINT64_MAX - 255},
	};
	struct file file;

	CHECK(!fab_places_open("fi_shm://places_test.nobody"));
	file_make(&file, "layout");
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
	file.bytes[NAME]++;
	CHECK(!is_known(&file));
	file.bytes[NAME]--;
	place(&file, 0)->id = 0;
	CHECK(!is_known(&file));
	place(&file, 0)->id = -1;
	place(&file, COUNT - 1)->name_sent = 1;
	CHECK(!is_known(&file));
	place(&file, COUNT - 1)->name_sent = 0;
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

/* As one that is known. */
static void meet(const struct file *file, uint32_t index, uint64_t region)
{
	*place(file, index) = (struct place) {.id = index,
					      .name_sent = 1,
					      .local_region = region};
}

static int is_met(const struct file *file, uint32_t index)
{
	return place(file, index)->id == index &&
	       place(file, index)->name_sent &&
	       place(file, index)->local_region;
}

static int is_new(const struct file *file, uint32_t index)
{
	return place(file, index)->id == -1 && !place(file, index)->name_sent &&
	       !place(file, index)->local_region;
}

static void test_clear_one(void) /* Q2 */
{
	struct file mine, left, right;
	struct fab_places *places;
	struct fab_place *found;

	file_make(&mine, "mine");
	file_make(&left, "left");
	file_make(&right, "right");
	places = open_places(&mine);
	CHECK(places);
	CHECK(!fab_places_find(places, left.name));
	meet(&mine, 3, 4096); /* where nothing is mapped */
	meet(&mine, 7, (uintptr_t) left.bytes);
	meet(&mine, COUNT - 1, (uintptr_t) right.bytes);
	found = fab_places_find(places, right.name);
	CHECK(found);
	fab_places_leave(found);
	place(&mine, COUNT - 1)->id = 1; /* it reads only now */
	fab_places_sweep(places);
	CHECK(is_new(&mine, COUNT - 1));
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
	struct file mine, other;
	struct fab_places *places;

	file_make(&mine, "mine");
	file_make(&other, "other");
	places = open_places(&mine);
	CHECK(places);
	meet(&mine, 1, (uintptr_t) other.bytes);
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
	struct file first, second;
	uint64_t number;

	CHECK(!fab_place_file("places_test.nobody"));
	CHECK(fab_place_is_gone("places_test.nobody", 0));
	file_make(&first, "again");
	number = fab_place_file(first.name);
	CHECK(number && !fab_place_is_gone(first.name, 0));
	CHECK(!fab_place_is_gone(first.name, number));
	shm_unlink(first.name);
	CHECK(fab_place_is_gone(first.name, number));
	file_make(&second, "again"); /* the first is still mapped */
	CHECK(!fab_place_is_gone(first.name, 0));
	CHECK(fab_place_is_gone(first.name, number));
	file_remove(&first);
	file_remove(&second);
}

static void test_gone(void) /* Q3 */
{
	char gone[FAB_PLACE_NAME_BYTES] = "";
	struct file mine, here, closed, killed;
	struct fab_places *places;
	pid_t process = fork();

	if (!process)
		_exit(0);
	CHECK(process > 0 && waitpid(process, NULL, 0) == process);
	file_make(&mine, "mine");
	file_make(&here, "here");
	file_make(&closed, "closed");
	file_make(&killed, "killed");
	places = open_places(&mine);
	CHECK(places);
	meet(&mine, 1, (uintptr_t) here.bytes);
	meet(&mine, 4, 4096); /* where nothing is mapped */
	meet(&mine, 9, (uintptr_t) closed.bytes);
	CHECK(!count_gone(places, gone) && !count_gone(places, gone));
	shm_unlink(closed.name);
	CHECK(!count_gone(places, gone));
	CHECK(count_gone(places, gone) == 1 && !strcmp(gone, closed.name));
	fab_places_leave(fab_places_find(places, closed.name));
	CHECK(!count_gone(places, gone) && !count_gone(places, gone));

	/* Another one has got the place: the first look does not count. */
	shm_unlink(killed.name);
	snprintf(killed.name, sizeof(killed.name), "%d:places_test",
		 (int) process);
	strcpy((char *) killed.bytes + NAME, killed.name);
	close(shm_open(killed.name, O_RDWR | O_CREAT | O_EXCL, 0600));
	meet(&mine, 9, (uintptr_t) killed.bytes);
	CHECK(!count_gone(places, gone));
	CHECK(count_gone(places, gone) == 1 && !strcmp(gone, killed.name));
	meet(&mine, 0, (uintptr_t) killed.bytes);
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
