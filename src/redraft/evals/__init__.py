"""Tasks: problems, how they are asked, and how answers are graded."""
