"""The run side: loader, dispatcher, steps, scheduler, sampler. Never imports the build side."""
