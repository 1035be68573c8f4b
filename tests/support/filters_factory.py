"""A factory whose filters are read in one way and in two, as the source of a module."""

FACTORY = '''"""Filters that several read, in one way and in two."""

import torch
from torch.nn import functional as F


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = torch.nn.Conv2d(32, 32, (3, 2), padding=1)
        self.both = torch.nn.Conv2d(32, 32, 3, padding=1)
        self.made = torch.nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.twice(F.relu(self.twice(x))))
        y = F.relu(self.both(y))
        y = y + F.conv2d(y, self.made.weight * 2, None, padding=1)
        return y, self.both.weight[0].sum((1, 2))


def make():
    torch.manual_seed(0)
    return Shared().eval()
'''
