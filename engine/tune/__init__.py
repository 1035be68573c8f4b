"""The site's store of matrix products, and which way each of them is computed."""
