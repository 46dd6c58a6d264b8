# The models of the bridge, each built with a GIL (gil_) and without one (free_): the shipping files
# of csrc/python with a stand-in for the interpreter.  The last line of tests/model/Makefile includes
# this.

PY := $(HERE)/python
PY_MODELS := $(patsubst $(PY)/model_%.c,%,$(wildcard $(PY)/model_*.c))
# With a GIL a submit, a run, and giving a place back are one step each.
PY_PROGRAMS := $(filter-out gil_untaken gil_pins gil_undertake,$(PY_MODELS:%=gil_%)) $(PY_MODELS:%=free_%)
PY_UNITS := run observe block bound task future completions condition
PY_PLACES := home start untaken
PY_STARTING := pool start worker untaken
PY_HEADERS := $(wildcard $(CSRC)/python/*.h $(PY)/*.h) $(PY)/rules.mk
PY_FLAGS := -O1 -fsanitize=thread -I$(PY)

define py_rules
$(OUT)/$(1)_unit-%.o: $(CSRC)/python/%.c $(HEADERS) $(PY_HEADERS)
	@mkdir -p $$(@D)
	@$(GCC) $(FLAGS) $(PY_FLAGS) $(2) -c $$< -o $$@
$(OUT)/$(1)_seen-%.o: $(PY)/%.c $(HEADERS) $(PY_HEADERS)
	@mkdir -p $$(@D)
	@$(GCC) $(FLAGS) $(PY_FLAGS) $(2) -c $$< -o $$@
$(OUT)/$(1)_interpreter: $(OUT)/$(1)_seen-model_interpreter.o $(OUT)/$(1)_seen-interpreter.o \
		$(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -o $$@
$(OUT)/$(1)_untaken: $(OUT)/$(1)_seen-model_untaken.o $(OUT)/$(1)_unit-untaken.o \
		$(OUT)/$(1)_seen-interpreter.o $(UNITS:%=$(OUT)/sched-%.o) $(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -o $$@
$(OUT)/$(1)_promised: $(OUT)/$(1)_seen-model_promised.o $(OUT)/$(1)_unit-untaken.o \
		$(OUT)/$(1)_unit-start.o $(OUT)/$(1)_seen-interpreter.o \
		$(UNITS:%=$(OUT)/sched-%.o) $(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -o $$@
$(OUT)/$(1)_undertake: $(OUT)/$(1)_seen-model_undertake.o $(OUT)/$(1)_seen-crew.o \
		$(OUT)/$(1)_seen-interpreter.o $(PY_UNITS:%=$(OUT)/$(1)_unit-%.o) \
		$(UNITS:%=$(OUT)/sched-%.o) $(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -lm -o $$@
$(OUT)/$(1)_worker: $(OUT)/$(1)_seen-model_worker.o $(OUT)/$(1)_seen-crew.o \
		$(OUT)/$(1)_seen-interpreter.o $(PY_UNITS:%=$(OUT)/$(1)_unit-%.o) \
		$(OUT)/$(1)_unit-worker.o $(OUT)/$(1)_unit-untaken.o \
		$(UNITS:%=$(OUT)/sched-%.o) $(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -lm -o $$@
$(OUT)/$(1)_exit: $(OUT)/$(1)_seen-model_exit.o $(OUT)/$(1)_seen-crew.o \
		$(OUT)/$(1)_seen-interpreter.o $(PY_UNITS:%=$(OUT)/$(1)_unit-%.o) \
		$(OUT)/$(1)_unit-worker.o $(OUT)/$(1)_unit-untaken.o $(OUT)/$(1)_unit-module.o \
		$(UNITS:%=$(OUT)/sched-%.o) $(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -lm -o $$@
$(OUT)/$(1)_fork: $(OUT)/$(1)_seen-model_fork.o $(OUT)/$(1)_seen-crew.o \
		$(OUT)/$(1)_seen-interpreter.o $(PY_UNITS:%=$(OUT)/$(1)_unit-%.o) \
		$(OUT)/$(1)_unit-worker.o $(OUT)/$(1)_unit-untaken.o $(OUT)/$(1)_unit-fork.o \
		$(UNITS:%=$(OUT)/sched-%.o) $(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -lm -o $$@
$(OUT)/$(1)_start: $(OUT)/$(1)_seen-model_start.o $(OUT)/$(1)_seen-crew.o \
		$(OUT)/$(1)_seen-queue.o $(OUT)/$(1)_seen-interpreter.o \
		$(PY_UNITS:%=$(OUT)/$(1)_unit-%.o) $(PY_STARTING:%=$(OUT)/$(1)_unit-%.o) \
		$(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -lm -o $$@
$(OUT)/$(1)_home: $(OUT)/$(1)_seen-model_home.o $(OUT)/$(1)_seen-crew.o \
		$(OUT)/$(1)_seen-interpreter.o $(PY_UNITS:%=$(OUT)/$(1)_unit-%.o) \
		$(PY_PLACES:%=$(OUT)/$(1)_unit-%.o) $(UNITS:%=$(OUT)/sched-%.o) \
		$(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -lm -o $$@
$(OUT)/$(1)_%: $(OUT)/$(1)_seen-model_%.o $(OUT)/$(1)_seen-crew.o $(OUT)/$(1)_seen-interpreter.o \
		$(PY_UNITS:%=$(OUT)/$(1)_unit-%.o) $(EXPLORER:%=$(EXPLORER_OUT)/%.o)
	@$(GCC) -no-pie $$^ -lm -o $$@
endef
$(eval $(call py_rules,gil,))
$(eval $(call py_rules,free,-DPy_GIL_DISABLED))

PROGRAMS += $(PY_PROGRAMS)
all: $(PY_PROGRAMS:%=$(OUT)/%)
